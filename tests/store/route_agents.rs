//! Routes as an application has them: through agents, which are made from a config and a secret.

mod placement;
mod rotation;
