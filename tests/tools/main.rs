//! Tests that need no store: what is read, computed, generated or checked as text.

mod config;
mod floors;
mod hostile;
mod public_names;
mod queue_vectors;
mod requirements;
mod script_headers;
mod selector;
mod vectors;
