"""From observations to actions: encoders, networks, action heads, the policies made of them, and acting."""
