"""What tables are learned by if nothing else is asked for: few small models, averaged."""
