"""Several accounts of one provider."""
