//! Frames of the Minecraft protocol: a VarInt length, then so many bytes. Everything that was read is kept as it came.

use std::fmt;
use std::io;
use std::ops::Range;

use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest length of a frame, in bytes: 21 bits, as in the game itself.
const LENGTH_MAX_BYTES: usize = 3;
/// Longest VarInt, in bytes.
const VAR_INT_MAX_BYTES: usize = 5;
/// Most that a client may send before its backend answers, in bytes. Nothing of the sort is in the protocol; what a
/// client sends all the same is kept for the backend.
const EARLY_MAX_BYTES: usize = 16 * 1_024;

/// Why a client is not listened to any more.
#[derive(Debug)]
pub enum Fault {
    /// It ended the connection.
    Gone,
    /// Its connection broke.
    Io(io::Error),
    /// It does not speak the protocol.
    Malformed(&'static str),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it went away"),
            Self::Io(error) => write!(f, "its connection broke: {error}"),
            Self::Malformed(what) => f.write_str(what),
        }
    }
}

/// A cursor over the body of a frame.
#[derive(Debug, Clone, Copy)]
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    /// A number of at most 32 bits, 7 in each byte.
    pub fn var_int(&mut self) -> Result<i32, Fault> {
        let mut value = 0_u32;
        for (n, byte) in self.0.iter().enumerate().take(VAR_INT_MAX_BYTES) {
            value |= u32::from(byte & 0x7f) << (7 * n);
            if byte & 0x80 == 0 {
                self.0 = &self.0[n + 1..];
                return Ok(i32::from_ne_bytes(value.to_ne_bytes()));
            }
        }
        Err(Fault::Malformed("a number does not end"))
    }

    /// A text of at most so many characters, as the game counts them: in UTF-16.
    pub fn text(&mut self, max_chars: usize) -> Result<&'a str, Fault> {
        let bytes = usize::try_from(self.var_int()?).map_err(|_| Fault::Malformed("a text of negative length"))?;
        if bytes > max_chars * 3 {
            return Err(Fault::Malformed("a text is too long"));
        }
        let text = self.take(bytes)?;
        let text = std::str::from_utf8(text).map_err(|_| Fault::Malformed("a text is not UTF-8"))?;
        if text.encode_utf16().count() > max_chars {
            return Err(Fault::Malformed("a text is too long"));
        }
        Ok(text)
    }

    /// So many bytes.
    pub fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(bytes).ok_or(Fault::Malformed("a packet is too short"))?;
        self.0 = rest;
        Ok(taken)
    }
}

/// Where the body of the frame at the start of `bytes` is, `None` while its end is missing. A frame has a body of 1 to
/// `max` bytes.
pub fn locate(bytes: &[u8], max: usize) -> Result<Option<Range<usize>>, Fault> {
    let mut length = 0_usize;
    for (n, byte) in bytes.iter().enumerate().take(LENGTH_MAX_BYTES) {
        length |= usize::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            let start = n + 1;
            return match length {
                0 => Err(Fault::Malformed("an empty packet")),
                length if length > max => Err(Fault::Malformed("a packet is too long")),
                length => Ok((bytes.len() >= start + length).then_some(start..start + length)),
            };
        }
    }
    if bytes.len() < LENGTH_MAX_BYTES { Ok(None) } else { Err(Fault::Malformed("a length does not end")) }
}

/// What a client sent, byte for byte, and how much of it was understood.
#[derive(Debug, Default)]
pub struct Inlet {
    bytes: Vec<u8>,
    read: usize,
}

impl Inlet {
    /// All of it.
    pub fn raw(&self) -> &[u8] {
        &self.bytes
    }

    /// Reads on. Cancel safe.
    pub async fn more(&mut self, client: &mut (impl AsyncRead + Unpin)) -> Result<(), Fault> {
        match client.read_buf(&mut self.bytes).await {
            Ok(0) => Err(Fault::Gone),
            Ok(_) => Ok(()),
            Err(error) => Err(Fault::Io(error)),
        }
    }

    /// The body of the next frame. Reads no further than it has to, but for what comes in the same packet. Cancel safe.
    pub async fn frame(&mut self, client: &mut (impl AsyncRead + Unpin), max: usize) -> Result<Body<'_>, Fault> {
        loop {
            if let Some(body) = locate(&self.bytes[self.read..], max)? {
                let body = self.read + body.start..self.read + body.end;
                self.read = body.end;
                return Ok(Body(&self.bytes[body]));
            }
            self.more(client).await?;
        }
    }

    /// Waits until the client goes away or sends more than it may; what it sends until then is kept. Cancel safe.
    pub async fn gone(&mut self, client: &mut (impl AsyncRead + Unpin)) -> Fault {
        loop {
            if self.bytes.len() > self.read + EARLY_MAX_BYTES {
                return Fault::Malformed("it does not wait for its backend");
            }
            if let Err(fault) = self.more(client).await {
                return fault;
            }
        }
    }
}

/// A frame that holds `id` and one text.
pub fn text_frame(id: u8, text: &str) -> Vec<u8> {
    let mut body = vec![id];
    put_var_int(&mut body, text.len());
    body.extend_from_slice(text.as_bytes());
    let mut frame = Vec::with_capacity(body.len() + LENGTH_MAX_BYTES);
    put_var_int(&mut frame, body.len());
    frame.extend_from_slice(&body);
    frame
}

/// Appends a number in the game's form.
pub fn put_var_int(to: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        to.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
        value >>= 7;
    }
    to.push(u8::try_from(value).unwrap_or(0));
}
