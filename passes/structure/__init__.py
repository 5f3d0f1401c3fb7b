"""Take control flow and functions apart."""
