"""From observations to actions: encoders, networks, action distributions, and the policies made of them."""
