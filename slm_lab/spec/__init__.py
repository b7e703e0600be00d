"""From a spec file to a frozen, typed Spec."""
