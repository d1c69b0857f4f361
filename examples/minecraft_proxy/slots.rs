//! How many connections there may be, in all and from one address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};

/// Bits of an IPv6 address that its holder chooses freely.
const OWN_BITS: u32 = 64;

/// The room for connections.
#[derive(Debug)]
pub struct Slots {
    most: usize,
    most_of_one: usize,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

impl Slots {
    /// Room for `most`, and for `most_of_one` from the same address.
    pub fn new(most: usize, most_of_one: usize) -> Arc<Self> {
        Arc::new(Self { most, most_of_one, taken: Mutex::default() })
    }

    /// A slot for a client, if there is one. It is free again when dropped.
    pub fn take(self: &Arc<Self>, client: IpAddr) -> Option<Slot> {
        let address = holder(client);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let of_one = taken.by_address.get(&address).copied().unwrap_or(0);
        if taken.all >= self.most || of_one >= self.most_of_one {
            return None;
        }
        taken.all += 1;
        taken.by_address.insert(address, of_one + 1);
        Some(Slot { slots: Arc::clone(self), address })
    }
}

/// A connection's slot.
#[derive(Debug)]
pub struct Slot {
    slots: Arc<Slots>,
    address: IpAddr,
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut taken = self.slots.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= 1;
        if let Some(count) = taken.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                taken.by_address.remove(&self.address);
            }
        }
    }
}

/// The address as one holder has it: IPv6 comes in networks.
fn holder(client: IpAddr) -> IpAddr {
    match client.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> OWN_BITS << OWN_BITS).into(),
        address => address,
    }
}
