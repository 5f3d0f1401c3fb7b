"""Declaration and discovery of passes."""
