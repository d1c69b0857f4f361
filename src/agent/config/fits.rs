//! What names and texts of a config look like, and how they are shown to people.

use crate::ids::NAME_MAX_BYTES;

/// Most labels of a node.
pub(super) const LABELS_MAX: usize = 16;
/// Longest text of a label, in bytes.
pub(super) const LABEL_MAX_BYTES: usize = 128;
/// Longest address, in bytes.
const ADDR_MAX_BYTES: usize = 255;

/// True for an address that players can be sent to.
pub(super) fn is_addr(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let host_fits = match host.strip_prefix('[').and_then(|inner| inner.strip_suffix(']')) {
        Some(inner) => inner.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains([':', '[', ']']),
    };
    let port_fits = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    host_fits && port_fits && text.len() <= ADDR_MAX_BYTES && !text.chars().any(|c| c.is_whitespace() || c.is_control())
}

/// True for a name that a label may have.
pub(super) fn is_label_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_MAX_BYTES
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-'))
}

/// True for a text that a label may have.
pub(super) fn is_label_text(text: &str) -> bool {
    text.len() <= LABEL_MAX_BYTES && !text.chars().any(char::is_control)
}

/// A number that is outside its bounds.
pub(super) fn out_of_range(number: &dyn std::fmt::Display) -> String {
    format!("{number} is out of range")
}

pub(super) fn join(section: &str, name: &str) -> String {
    if section.is_empty() { name.to_owned() } else { format!("{section}.{name}") }
}

/// The path of a key for a message. A key that is no name is not repeated: a URL with a password may have become one.
pub(super) fn shown(section: &str, name: &str) -> String {
    join(section, if is_label_name(name) { name } else { "(a key that is no name)" })
}
