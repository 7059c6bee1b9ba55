"""Programs that measure the engine from inside its process. They import `native_engine`, never the
other way round: no server, no request and no candidate needs this folder."""
