"""What is measured of a model while it trains and after."""
