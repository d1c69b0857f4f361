//! The table: a line for each operation, a column for each state that the player's row is in before it.
//!
//! A cell says what is answered and what stands afterwards. `=` stands for "not one byte of the zone changed", `-` for no
//! row, `m` for a row that holds nothing but cancel marks. Else a token (`t` the one asked about, `o` the other one that
//! replaced it, `n` a new one) and its state: **P**ENDING, **C**LAIMED, CONSUMED (**U**sed), **R**ELEASED,
//! **E**XPIRED.
//!
//! The token `t` is of backend b1, request r1, attempt 2, and was claimed by proxy A under op-a and consumed under op-c
//! where the state asks for it.

/// Columns: no row; only a mark that r1 was cancelled; PENDING; CLAIMED by A; claimed by A and PENDING again; replaced by
/// `o`, which is PENDING with r1 at attempt 3.
pub const OPEN: (&[&str], &str) = (
    &["none", "marked", "pending", "claimed", "reopened", "replaced"],
    "
issue b1 r1#3       | Issued nP   | Cancelled = | Issued nP     | Taken =      | Issued nP    | Taken =
issue b1 r1#2       | Issued nP   | Cancelled = | Taken =       | Taken =      | Taken =      | Taken =
issue b1 r1#1       | Issued nP   | Cancelled = | Taken =       | Taken =      | Taken =      | Taken =
issue b1 r2#1       | Issued nP   | Issued nP   | Taken =       | Taken =      | Taken =      | Taken =
issue b2 r1#4       | Issued nP   | Cancelled = | Issued nP     | Taken =      | Issued nP    | Issued nP
issue b2 r2#1       | Issued nP   | Issued nP   | Taken =       | Taken =      | Taken =      | Taken =
issue b1 again      | Issued tP   | Cancelled = | Issued =      | Issued =     | Issued =     | Ended(SUPERSEDED) =
claim A op-a        | None =      | None =      | Claimed tC    | Claimed =    | Lost =       | Ended(SUPERSEDED) =
claim A new         | None =      | None =      | Claimed tC    | Lost =       | Claimed tC   | Ended(SUPERSEDED) =
claim B new         | None =      | None =      | Claimed tC    | Lost =       | Claimed tC   | Ended(SUPERSEDED) =
claim router new    | None =      | None =      | Claimed tC    | Lost =       | Claimed tC   | Ended(SUPERSEDED) =
claim A stranger    | None =      | None =      | None =        | None =       | None =       | None =
consume b1 op-c     | None =      | None =      | NotClaimed =  | Consumed tU  | Consumed tU  | Ended(SUPERSEDED) =
consume b1 new      | None =      | None =      | NotClaimed =  | Consumed tU  | Consumed tU  | Ended(SUPERSEDED) =
consume b2 new      | None =      | None =      | NotYours =    | NotYours =   | NotYours =   | Ended(SUPERSEDED) =
consume b1-old new  | Fenced =    | Fenced =    | Fenced =      | Fenced =     | Fenced =     | Fenced =
consume b1 stranger | None =      | None =      | None =        | None =       | None =       | None =
release A           | None =      | None =      | Lost =        | Released tR  | Lost =       | Ended(SUPERSEDED) =
release B           | None =      | None =      | Lost =        | Lost =       | Lost =       | Ended(SUPERSEDED) =
release b1          | None =      | None =      | Released tR   | Released tR  | Released tR  | Ended(SUPERSEDED) =
release b1-old      | None =      | None =      | Lost =        | Lost =       | Lost =       | Ended(SUPERSEDED) =
release b2          | None =      | None =      | Lost =        | Lost =       | Lost =       | Ended(SUPERSEDED) =
release operator    | None =      | None =      | Released tR   | Released tR  | Released tR  | Ended(SUPERSEDED) =
cancel A r1         | Marked m    | Marked m    | Released tR   | Released tR  | Released tR  | Released oR
cancel B r1         | Marked m    | Marked m    | Released tR   | Lost tC      | Released tR  | Released oR
cancel A r2         | Marked m    | Marked m    | Marked tP     | Marked tC    | Marked tP    | Marked oP
reap now            | Nothing =   | Nothing =   | Nothing =     | Nothing =    | Nothing =    | Nothing =
reap due            | Nothing =   | Nothing =   | Kept tP       | Kept tC      | Kept tP      | Kept oP
reap dead           | Nothing =   | Nothing =   | Kept tP       | Reopened tP  | Kept tP      | Kept oP
reap over           | Nothing =   | Nothing =   | Expired tE    | Expired tE   | Expired tE   | Expired oE
",
);

/// Columns: CONSUMED; RELEASED by b1; EXPIRED; PENDING past its time and not swept; CLAIMED past its time and not swept.
pub const OVER: (&[&str], &str) = (
    &["consumed", "released", "expired", "late-pending", "late-claimed"],
    "
issue b1 r1#3       | Issued nP         | Issued nP         | Issued nP        | Issued nP         | Issued nP
issue b1 r1#2       | Attempt =         | Attempt =         | Attempt =        | Attempt =         | Attempt =
issue b1 r1#1       | Attempt =         | Attempt =         | Attempt =        | Attempt =         | Attempt =
issue b1 r2#1       | Issued nP         | Issued nP         | Issued nP        | Issued nP         | Issued nP
issue b2 r1#4       | Issued nP         | Issued nP         | Issued nP        | Issued nP         | Issued nP
issue b2 r2#1       | Issued nP         | Issued nP         | Issued nP        | Issued nP         | Issued nP
issue b1 again      | Ended(CONSUMED) = | Ended(RELEASED) = | Ended(EXPIRED) = | Ended(EXPIRED) =  | Ended(EXPIRED) =
claim A op-a        | Ended(CONSUMED) = | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
claim A new         | Ended(CONSUMED) = | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
claim B new         | Ended(CONSUMED) = | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
claim router new    | Ended(CONSUMED) = | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
claim A stranger    | None =            | None =            | None =           | None =            | None =
consume b1 op-c     | Consumed =        | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
consume b1 new      | Replay =          | Ended(RELEASED) = | Ended(EXPIRED) = | Expired =         | Expired =
consume b2 new      | Replay =          | Ended(RELEASED) = | Ended(EXPIRED) = | NotYours =        | NotYours =
consume b1-old new  | Fenced =          | Fenced =          | Fenced =         | Fenced =          | Fenced =
consume b1 stranger | None =            | None =            | None =           | None =            | None =
release A           | Landed =          | Released =        | Ended(EXPIRED) = | Lost =            | Ended(EXPIRED) tE
release B           | Landed =          | Released =        | Ended(EXPIRED) = | Lost =            | Lost =
release b1          | Landed =          | Released =        | Ended(EXPIRED) = | Ended(EXPIRED) tE | Ended(EXPIRED) tE
release b1-old      | Landed =          | Released =        | Ended(EXPIRED) = | Lost =            | Lost =
release b2          | Landed =          | Released =        | Ended(EXPIRED) = | Lost =            | Lost =
release operator    | Landed =          | Released =        | Ended(EXPIRED) = | Ended(EXPIRED) tE | Ended(EXPIRED) tE
cancel A r1         | Landed tU         | Marked tR         | Marked tE        | Marked tP         | Marked tC
cancel B r1         | Landed tU         | Marked tR         | Marked tE        | Marked tP         | Marked tC
cancel A r2         | Marked tU         | Marked tR         | Marked tE        | Marked tP         | Marked tC
reap now            | Nothing =         | Nothing =         | Nothing =        | Expired tE        | Expired tE
reap due            | Nothing =         | Nothing =         | Nothing =        | Expired tE        | Expired tE
reap dead           | Nothing =         | Nothing =         | Nothing =        | Expired tE        | Expired tE
reap over           | Nothing =         | Nothing =         | Nothing =        | Expired tE        | Expired tE
",
);
