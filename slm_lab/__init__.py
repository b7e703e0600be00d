"""SLM-Lab: from a spec to a trained, resumable, repeatable run."""
