"""Expert data, behaviour cloning and generative adversarial imitation."""
