"""Other file formats: GGUF, ONNX, CTranslate2."""
