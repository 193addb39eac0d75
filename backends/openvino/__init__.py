"""OpenVINO GenAI: the adapter on the harness's side, the engine in its own environment."""
