//! What others ask of one node: whether it can be sent to, and as which epoch.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId, ServiceName};

use super::super::liveness::Liveness;
use super::super::record::NodeRecord;
use super::super::view::ServiceRef;
use super::Directory;

impl Directory {
    /// A node that can be sent to. Before it answers that a node is unknown, suspect or offline a view that does not
    /// hear the node's beats reads its row once.
    ///
    /// Errors: [`Error::NodeNotFound`], [`Error::NodeSuspect`], [`Error::NodeOffline`] (also for a node that is expected and
    /// was not seen), [`Error::NodeRemoved`].
    pub async fn resolve(&self, id: &NodeId) -> Result<Arc<NodeRecord>> {
        if let Some(view) = self.view_of(id).filter(|view| view.liveness == Liveness::Online) {
            return Ok(view.record);
        }
        // Heartbeats of roles that are left out are not heard.
        let heard = self.contact().feed.is_some() && self.inner.options.roles.is_none();
        // A node that is only expected may be there since a moment ago.
        if !heard || self.view().get(id).is_none() {
            self.read_one(id).await?;
        }
        // A row that was just read is judged as of now, not as of the last read of all.
        let view = if heard { self.view_of(id) } else { self.view().view_of(id, self.inner.store.clock().now_ms()) };
        match view {
            None => Err(Error::NodeNotFound(id.clone())),
            Some(view) => match view.liveness {
                Liveness::Online => Ok(view.record),
                Liveness::Suspect => Err(Error::NodeSuspect(id.clone())),
                Liveness::Connecting | Liveness::Offline => Err(Error::NodeOffline(id.clone())),
                Liveness::Removed => Err(Error::NodeRemoved(id.clone())),
            },
        }
    }

    /// A reference to `service` at `node`, of the node's present epoch.
    ///
    /// Errors: those of [`resolve`](Self::resolve), and [`Error::ServiceNotFound`].
    pub async fn query(&self, node: &NodeId, service: &ServiceName) -> Result<ServiceRef> {
        let record = self.resolve(node).await?;
        if !record.offers(service.as_str()) {
            return Err(Error::ServiceNotFound { service: service.to_string(), at: node.to_string() });
        }
        Ok(ServiceRef { node: node.clone(), epoch: record.epoch, service: service.clone() })
    }

    /// True where `epoch` is the present one of `id`. An unknown node or epoch costs one read of its row.
    pub async fn is_current(&self, id: &NodeId, epoch: Epoch) -> Result<bool> {
        let known = self.view().get(id).map(|record| record.epoch);
        if known == Some(epoch) {
            return Ok(true);
        }
        Ok(self.read_one(id).await?.is_some_and(|record| record.epoch == epoch))
    }

    /// The epoch of `id` in the view.
    pub fn epoch_of(&self, id: &NodeId) -> Option<Epoch> {
        self.view().get(id).map(|record| record.epoch)
    }
}
