"""What crosses a channel: messages as frozen types, their bytes, and the layout of a client's public part."""
