//! Signals to a child process, by its own handle.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Sends `signal` to a child that still runs. One that has ended is refused: its pid may be somebody else's by now.
pub fn send(child: &mut Child, signal: Signal) {
    let pid = child.id();
    if let Ok(Some(status)) = child.try_wait() {
        panic!("child {pid} has ended already ({status}), so there is nobody to send {signal:?} to");
    }
    if let Err(error) = kill_process(Pid::from_child(child), signal) {
        panic!("could not send {signal:?} to child {pid}: {error}");
    }
}

/// Waits until the child has ended, at most `limit`.
pub fn wait_for_exit(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            Ok(None) => return None,
            Err(error) => panic!("could not wait for child {}: {error}", child.id()),
        }
    }
}

/// Ends the child for good and reaps it; a child that already ended is fine.
pub fn end(child: &mut Child) {
    // Both fail only when the child is already reaped, which is what the caller wants.
    let _ = child.kill();
    let _ = child.wait();
}
