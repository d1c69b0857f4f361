//! RESP2 and RESP3 frames, read just far enough to count and to cut between them.
//!
//! Both readers take the bytes that have arrived so far and answer `None` while the first frame is not whole.
//! Streamed RESP3 types (`$?`, `*?`) are refused: no store sends them.

/// Bytes that are no RESP frame, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub String);

/// What a server's frame is, as far as the proxy cares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An RESP3 push: nobody asked for it.
    Push,
    /// An array, which in RESP2 may be a published message too.
    Array,
    /// `-` or `!`.
    Error,
    /// Everything else.
    Value,
}

/// One whole frame from the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reply {
    /// Bytes that it takes up, attributes in front of it included.
    pub len: usize,
    /// What it is.
    pub kind: Kind,
    /// The first element of an array or push in lower case, if that is a string: `message`, `subscribe`.
    pub word: Option<String>,
}

/// One whole command from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Bytes that it takes up.
    pub len: usize,
    /// The command and its arguments; empty for a blank inline line, which a server does not answer.
    pub args: Vec<Vec<u8>>,
}

/// Reads the first reply in `buf`.
pub fn reply(buf: &[u8]) -> Result<Option<Reply>, Malformed> {
    whole(Cursor { buf, at: 0 }, |cursor| {
        while cursor.peek()? == b'|' {
            cursor.byte()?;
            let pairs = cursor.count()?.unwrap_or(0);
            cursor.skip(pairs.saturating_mul(2))?;
        }
        let kind = match cursor.peek()? {
            b'>' => Kind::Push,
            b'*' => Kind::Array,
            b'-' | b'!' => Kind::Error,
            _ => Kind::Value,
        };
        let word = cursor.first_word(kind);
        cursor.skip(1)?;
        Ok(Reply { len: cursor.at, kind, word })
    })
}

/// Reads the first command in `buf`: an array of bulk strings, or an inline line.
pub fn request(buf: &[u8]) -> Result<Option<Request>, Malformed> {
    whole(Cursor { buf, at: 0 }, |cursor| {
        let mut args = Vec::new();
        if cursor.peek()? == b'*' {
            cursor.byte()?;
            for _ in 0..cursor.count()?.unwrap_or(0) {
                args.push(cursor.bulk()?.to_vec());
            }
        } else {
            let words = cursor.line()?.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            args.extend(words.map(<[u8]>::to_vec));
        }
        Ok(Request { len: cursor.at, args })
    })
}

enum Stop {
    Short,
    Bad(String),
}

fn whole<'a, T>(
    mut cursor: Cursor<'a>,
    read: impl FnOnce(&mut Cursor<'a>) -> Result<T, Stop>,
) -> Result<Option<T>, Malformed> {
    match read(&mut cursor) {
        Ok(frame) => Ok(Some(frame)),
        Err(Stop::Short) => Ok(None),
        Err(Stop::Bad(why)) => Err(Malformed(format!("{why} at byte {}", cursor.at))),
    }
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    buf: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a [u8] {
        &self.buf[self.at..]
    }

    fn peek(&self) -> Result<u8, Stop> {
        self.rest().first().copied().ok_or(Stop::Short)
    }

    fn byte(&mut self) -> Result<u8, Stop> {
        let byte = self.peek()?;
        self.at += 1;
        Ok(byte)
    }

    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = self.rest();
        let end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Stop::Short)?;
        self.at += end + 2;
        Ok(&rest[..end])
    }

    /// The length after a type byte; `None` for the null of RESP2, `-1`.
    fn count(&mut self) -> Result<Option<u64>, Stop> {
        let line = self.line()?;
        let text = std::str::from_utf8(line).map_err(|_| Stop::Bad("a length that is no text".to_owned()))?;
        if text == "-1" {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| Stop::Bad(format!("no length: {text:?}")))
    }

    fn payload(&mut self, len: u64) -> Result<&'a [u8], Stop> {
        let rest = self.rest();
        let len = usize::try_from(len).map_err(|_| Stop::Bad(format!("length {len} does not fit")))?;
        let end = len.checked_add(2).ok_or_else(|| Stop::Bad(format!("length {len} does not fit")))?;
        if rest.len() < end {
            return Err(Stop::Short);
        }
        if &rest[len..end] != b"\r\n" {
            return Err(Stop::Bad(format!("no line end after {len} bytes")));
        }
        self.at += end;
        Ok(&rest[..len])
    }

    fn bulk(&mut self) -> Result<&'a [u8], Stop> {
        match self.byte()? {
            b'$' => {
                let len = self.count()?.ok_or_else(|| Stop::Bad("a null argument".to_owned()))?;
                self.payload(len)
            }
            other => Err(Stop::Bad(format!("argument of type {:?}", char::from(other)))),
        }
    }

    /// Passes over `left` values with all that is inside them.
    fn skip(&mut self, mut left: u64) -> Result<(), Stop> {
        while left > 0 {
            left -= 1;
            let inside = match self.byte()? {
                b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {
                    self.line()?;
                    0
                }
                b'$' | b'!' | b'=' => {
                    if let Some(len) = self.count()? {
                        self.payload(len)?;
                    }
                    0
                }
                b'*' | b'~' | b'>' => self.count()?.unwrap_or(0),
                b'%' => self.count()?.unwrap_or(0).saturating_mul(2),
                // The attributes of a value come before it, so the value itself is still to be read.
                b'|' => self.count()?.unwrap_or(0).saturating_mul(2).saturating_add(1),
                other => return Err(Stop::Bad(format!("unknown type {:?}", char::from(other)))),
            };
            left = left.saturating_add(inside);
        }
        Ok(())
    }

    fn first_word(&self, kind: Kind) -> Option<String> {
        if !matches!(kind, Kind::Push | Kind::Array) {
            return None;
        }
        let mut look = *self;
        look.byte().ok()?;
        look.count().ok()?.filter(|elements| *elements > 0)?;
        let word = match look.peek().ok()? {
            b'+' => {
                look.byte().ok()?;
                look.line().ok()?
            }
            _ => look.bulk().ok()?,
        };
        Some(String::from_utf8_lossy(word).to_ascii_lowercase())
    }
}
