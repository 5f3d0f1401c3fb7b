"""What only verification asks about operators: which inputs are legal, telling and likely, and what runs cost."""
