//! Properties every policy shares.
