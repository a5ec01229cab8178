"""The local store: content, records, roots and locks as plain files (docs/format-store.md)."""
