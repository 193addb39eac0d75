"""ONNX Runtime: the converter's model, served by batches over bound KV buffers."""
