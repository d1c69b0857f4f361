//! The first packets of a client: the handshake, and who logs in. The same in every version from 1.7 on.

use std::time::Duration;

use maitred::ids::Player;
use tokio::io::AsyncRead;
use tokio::time::timeout;

use super::frame::{Body, Fault, Inlet};

/// Longest handshake, in bytes: a host of 255 characters, which mod loaders add their mark to, and three numbers.
pub const HANDSHAKE_MAX_BYTES: usize = 1_100;
/// Longest start of a login, in bytes. 1.19 to 1.19.2 send a public key and a signature with it.
pub const LOGIN_MAX_BYTES: usize = 2_048;
/// Longest name of a player, in characters.
const NAME_MAX_CHARS: usize = 16;
/// The first byte of a server list ping of versions before 1.7.
const OLD_PING: u8 = 0xfe;
/// What follows it from 1.4 on.
const OLD_PING_DETAILED: u8 = 0x01;
/// What follows that in 1.6: a message of a plugin.
const OLD_PING_PLUGIN: u8 = 0xfa;
/// How long what follows an old ping may take.
const OLD_PING_WAIT: Duration = Duration::from_millis(500);

/// What a client wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Hello {
    /// The line of the server list. `protocol` is the client's version.
    Status { protocol: i32 },
    /// To play.
    Login { name: Player },
    /// The line of the server list, asked for as before 1.7: `detailed` from 1.4 on.
    OldPing { detailed: bool },
}

/// Reads until it is clear what the client wants. The caller sets the time.
pub async fn read(inlet: &mut Inlet, client: &mut (impl AsyncRead + Unpin)) -> Result<Hello, Fault> {
    inlet.more(client).await?;
    // The oldest send one or two bytes and wait.
    let rest = async { while old_so_far(inlet.raw()) && inlet.more(client).await.is_ok() {} };
    let _ = timeout(OLD_PING_WAIT, rest).await;
    match inlet.raw() {
        [OLD_PING] => return Ok(Hello::OldPing { detailed: false }),
        [OLD_PING, OLD_PING_DETAILED] | [OLD_PING, OLD_PING_DETAILED, OLD_PING_PLUGIN, ..] => {
            return Ok(Hello::OldPing { detailed: true });
        }
        // The length of a handshake may begin with the same bytes. The number of its packet, 0, comes behind it.
        _ => {}
    }
    let (protocol, next) = handshake(inlet.frame(client, HANDSHAKE_MAX_BYTES).await?)?;
    match next {
        1 => Ok(Hello::Status { protocol }),
        // 3: sent here by another server, from 1.20.5 on.
        2 | 3 => Ok(Hello::Login { name: login(inlet.frame(client, LOGIN_MAX_BYTES).await?)? }),
        _ => Err(Fault::Malformed("an unknown wish")),
    }
}

/// The bytes may be an old ping, or the start of something longer.
fn old_so_far(bytes: &[u8]) -> bool {
    matches!(bytes, [OLD_PING] | [OLD_PING, OLD_PING_DETAILED])
}

/// Protocol version and next state.
pub fn handshake(mut body: Body<'_>) -> Result<(i32, i32), Fault> {
    if body.var_int()? != 0 {
        return Err(Fault::Malformed("no handshake"));
    }
    let protocol = body.var_int()?;
    body.text(255)?;
    body.take(2)?;
    let next = body.var_int()?;
    if body.0.is_empty() { Ok((protocol, next)) } else { Err(Fault::Malformed("a handshake with more behind it")) }
}

/// Who logs in. The name comes first in every version; what follows it is the backend's to read.
pub fn login(mut body: Body<'_>) -> Result<Player, Fault> {
    if body.var_int()? != 0 {
        return Err(Fault::Malformed("no login"));
    }
    Player::new(body.text(NAME_MAX_CHARS)?).map_err(|_| Fault::Malformed("a name that cannot be"))
}
