//! QUE-9: requests that wait, as processes of a fleet see it.

mod killed;
mod sidecar;
