"""What a comparison asks of the world: images, revisions, repositories, device code."""
