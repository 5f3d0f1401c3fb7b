"""What the commands share: parsing, configuration, arguments and output."""
