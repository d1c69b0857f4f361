//! Weighted random choice over free capacity (QUE-5): pure, the randomness comes in as a seed.

use crate::ids::NodeId;

/// Draws one of `nodes` (id and free places), each with a chance in proportion to its free places; a node without one is
/// never drawn. `None` where nobody has a free place.
///
/// Each node runs an exponential race of its own, its time from `seed` and its id: the first one wins. So the same nodes and
/// the same seed give the same answer in whatever order the nodes come, nothing is collected or sorted, and a node that joins
/// or leaves changes no answer but those it wins or won. The idea is that of weighted reservoir sampling by Efraimidis and
/// Spirakis.
pub fn draw<'a>(nodes: impl IntoIterator<Item = (&'a NodeId, u64)>, seed: u64) -> Option<&'a NodeId> {
    let mut first: Option<(f64, &NodeId)> = None;
    for (id, free) in nodes.into_iter().filter(|(_, free)| *free > 0) {
        #[expect(clippy::cast_precision_loss, reason = "a weight needs no more than 53 bits")]
        let time = -chance(seed, id).ln() / free as f64;
        if first.is_none_or(|(best, at)| time < best || (time == best && id < at)) {
            first = Some((time, id));
        }
    }
    first.map(|(_, id)| id)
}

/// A number above 0 and below 1, evenly spread over seeds and ids.
fn chance(seed: u64, id: &NodeId) -> f64 {
    // FNV-1a over the id, then the finaliser of SplitMix64.
    let mut bits = id
        .as_str()
        .bytes()
        .fold(seed ^ 0xcbf2_9ce4_8422_2325, |bits, byte| (bits ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    for (shift, factor) in [(30, 0xbf58_476d_1ce4_e5b9_u64), (27, 0x94d0_49bb_1331_11eb)] {
        bits = (bits ^ (bits >> shift)).wrapping_mul(factor);
    }
    bits ^= bits >> 31;
    #[expect(clippy::cast_precision_loss, reason = "the 53 bits that are left fit")]
    let upper = (bits >> 11) as f64;
    #[expect(clippy::cast_precision_loss, reason = "a power of two")]
    let steps = (1_u64 << 53) as f64;
    (upper + 0.5) / steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(free: &[u64]) -> Vec<(NodeId, u64)> {
        free.iter().enumerate().map(|(n, free)| (NodeId::new(format!("b{n}")).expect("valid"), *free)).collect()
    }

    fn drawn(nodes: &[(NodeId, u64)], seed: u64) -> Option<&NodeId> {
        draw(nodes.iter().map(|(id, free)| (id, *free)), seed)
    }

    #[test]
    fn que_5_a_node_is_drawn_in_proportion_to_its_free_places() {
        let nodes = nodes(&[1, 0, 2, 7]);
        let mut counts = [0_u32; 4];
        for seed in 0..100_000 {
            let id = drawn(&nodes, seed).expect("there is room");
            counts[nodes.iter().position(|(known, _)| known == id).expect("one of them")] += 1;
        }
        assert_eq!(counts[1], 0, "a full node");
        for (count, tenths) in [(counts[0], 1), (counts[2], 2), (counts[3], 7)] {
            // Ten standard deviations of the most uncertain share are 1,581.
            assert!(count.abs_diff(tenths * 10_000) < 1_600, "{counts:?}");
        }
    }

    #[test]
    fn que_5_nobody_is_drawn_where_nobody_has_room() {
        assert_eq!(drawn(&[], 1), None);
        assert_eq!(drawn(&nodes(&[0, 0]), 1), None);
        assert_eq!(drawn(&nodes(&[0, u64::MAX]), 1).map(NodeId::as_str), Some("b1"));
    }

    #[test]
    fn sel_1_the_order_of_the_nodes_changes_nothing() {
        let mut nodes = nodes(&[3, 1, 4, 1, 5, 9]);
        for seed in 0..1_000 {
            let first = drawn(&nodes, seed).cloned();
            nodes.rotate_left(1);
            nodes.swap(0, 3);
            assert_eq!(drawn(&nodes, seed).cloned(), first, "{seed}");
        }
    }
}
