//! Newtypes that can only hold valid values: what the rest of the crate may rely on without checking again.
//!
//! Names (zone, node id, role, service, line) are 1 to 64 bytes of `[A-Za-z0-9._-]`, node ids at most 59, because the wait
//! line of a backend is named `wait.<server>`. Players are 1 to 128 bytes without blanks or control characters. Backend
//! names are what configs of proxies call backends: up to 128 characters, freer than node ids. All of them are cheap to
//! clone (a counted pointer).

mod object;
mod text;

pub use object::{Epoch, NodeEpoch, ObjectKey};
pub use text::{
    BACKEND_NAME_MAX_CHARS, BackendName, Incarnation, InvalidId, LimitName, LineName, NAME_MAX_BYTES,
    NODE_ID_MAX_BYTES, NodeId, ObjectId, ObjectKind, OperationId, PLAYER_MAX_BYTES, Player, Region, RequestId, Role,
    ServiceName, SessionId, TokenId, Zone,
};
