"""The model: a decoder's geometry, weights, rotary positions and forward pass, without its attention."""
