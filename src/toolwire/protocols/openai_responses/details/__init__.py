"""What only this room needs: items, their tools, and the streams' open items."""
