//! The line of the server list: how many play in the fleet, and how many may.

use std::io;

use maitred::agent::ProxyAgent;
use maitred::ids::Role;
use maitred::node::Liveness;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::frame::{Fault, Inlet, put_var_int, text_frame};

/// Longest packet of a client that only asks, in bytes.
const ASK_MAX_BYTES: usize = 16;
/// Number of the packet that asks for the line.
const ASK: i32 = 0;
/// Number of the packet whose eight bytes come back.
const PING: i32 = 1;

/// Players on all backends that are online, and how many those want at most.
pub fn population(proxy: &ProxyAgent) -> (u64, u64) {
    let snapshot = proxy.agent().directory().snapshot();
    let backends =
        snapshot.nodes.iter().filter(|view| view.liveness == Liveness::Online && view.record.role == Role::backend());
    sum(backends.map(|view| (view.record.players, view.record.soft_cap)))
}

/// Each of the two added up. A node may publish any number.
pub fn sum(backends: impl Iterator<Item = (u64, u64)>) -> (u64, u64) {
    backends.fold((0, 0), |(players, cap), (more, room)| {
        (u64::saturating_add(players, more), u64::saturating_add(cap, room))
    })
}

/// Answers the question and the ping behind it, in whatever order. The caller sets the time.
pub async fn serve(
    proxy: &ProxyAgent,
    motd: &str,
    protocol: i32,
    inlet: &mut Inlet,
    client: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), Fault> {
    for _ in 0..2 {
        let mut body = inlet.frame(client, ASK_MAX_BYTES).await?;
        let answer = match body.var_int()? {
            ASK => text_frame(0, &line(proxy, motd, protocol)),
            PING => {
                let echo = body.take(8)?;
                let mut frame = Vec::new();
                put_var_int(&mut frame, echo.len() + 1);
                frame.push(1);
                frame.extend_from_slice(echo);
                frame
            }
            _ => return Err(Fault::Malformed("neither a question nor a ping")),
        };
        client.write_all(&answer).await.map_err(Fault::Io)?;
    }
    Ok(())
}

fn line(proxy: &ProxyAgent, motd: &str, protocol: i32) -> String {
    let (online, max) = population(proxy);
    serde_json::json!({
        // The client's own version: whether it fits is the backend's business.
        "version": { "name": "maitred", "protocol": protocol },
        "players": { "online": online, "max": max },
        "description": { "text": motd },
    })
    .to_string()
}

/// Answers a ping of the time before 1.7.
pub async fn serve_old(
    proxy: &ProxyAgent,
    motd: &str,
    detailed: bool,
    client: &mut (impl AsyncWrite + Unpin),
) -> io::Result<()> {
    let (online, max) = population(proxy);
    let text = if detailed {
        // 127: a version that no client has, so that none takes this for its own.
        ["\u{a7}1", "127", "maitred", motd, &online.to_string(), &max.to_string()].join("\0")
    } else {
        format!("{}\u{a7}{online}\u{a7}{max}", motd.replace('\u{a7}', ""))
    };
    let units: Vec<u16> = text.encode_utf16().take(256).collect();
    let mut packet = vec![0xff];
    packet.extend_from_slice(&u16::try_from(units.len()).unwrap_or(0).to_be_bytes());
    packet.extend(units.iter().flat_map(|unit| unit.to_be_bytes()));
    client.write_all(&packet).await
}
