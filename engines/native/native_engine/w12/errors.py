"""What can go wrong when a checkpoint is packed."""


class W12FileError(ValueError):
    """A file is not what it should be; the message names it and the remedy."""


class RoundTripError(RuntimeError):
    """A packed tensor does not decode to its source bits: nothing of the file is kept."""
