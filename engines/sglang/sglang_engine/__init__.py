"""SGLang's own server as an engine tree: started as published, and made to say which arm it is."""
