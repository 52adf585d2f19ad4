"""The notebook edge: magics that parse, ask and show; all else is the engine's."""
