"""Agents of other libraries and formats: Stable-Baselines3, ONNX, torch.export, the Hugging Face Hub."""
