use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::ids::{Epoch, NodeId, ServiceName};
use crate::node::ServiceRef;

use super::exchange::Exchange;
use super::handler::DynHandler;

/// Whom a message is for.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    /// A name of this node, which always wins, or `node:service`.
    Name(&'a str),
    /// A service at a node in one epoch, as [`Directory::query`](crate::node::Directory::query) answers it. Refused with
    /// [`Error::StaleReference`] once that epoch is over.
    Reference(&'a ServiceRef),
}

impl<'a> From<&'a str> for Target<'a> {
    fn from(name: &'a str) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a String> for Target<'a> {
    fn from(name: &'a String) -> Self {
        Self::Name(name)
    }
}

impl<'a> From<&'a ServiceRef> for Target<'a> {
    fn from(reference: &'a ServiceRef) -> Self {
        Self::Reference(reference)
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Reference(reference) => write!(f, "{}:{}", reference.node, reference.service),
        }
    }
}

/// Where a target leads.
pub(super) enum Way {
    /// To a handler of this process.
    Here {
        /// Its name.
        service: String,
        /// It.
        handler: Arc<dyn DynHandler>,
    },
    /// To another node.
    There {
        /// The node.
        node: NodeId,
        /// Its present epoch.
        epoch: Epoch,
        /// The service.
        service: ServiceName,
    },
}

impl Exchange {
    /// The order of MSG-2: a name of this node, then the node's state, then the service. No I/O where the view knows
    /// the node and its service; one read of its row before saying that either is not there.
    pub(super) async fn resolve(&self, target: Target<'_>) -> Result<Way> {
        match target {
            Target::Name(name) => {
                if let Some(handler) = self.services.local(name) {
                    return Ok(Way::Here { service: name.to_owned(), handler });
                }
                let Some((node, service)) = name.split_once(':') else {
                    return Err(Error::ServiceNotFound { service: name.to_owned(), at: "this node".to_owned() });
                };
                let node = NodeId::new(node)?;
                if node == *self.lease.id() {
                    return self.here(service);
                }
                let service = ServiceName::new(service)?;
                let epoch = self.offering(&node, &service).await?;
                Ok(Way::There { node, epoch, service })
            }
            Target::Reference(reference) => self.resolve_reference(reference).await,
        }
    }

    async fn resolve_reference(&self, reference: &ServiceRef) -> Result<Way> {
        let ServiceRef { node, epoch, service } = reference.clone();
        let stale = |node, service| Error::StaleReference { node, service, epoch };
        if node == *self.lease.id() {
            return if epoch == self.lease.epoch() { self.here(service.as_str()) } else { Err(stale(node, service)) };
        }
        let mut present = self.directory.resolve(&node).await?.epoch;
        if present < epoch {
            // The reference is newer than the view.
            self.directory.read_again(&node).await?;
            present = self.directory.resolve(&node).await?.epoch;
        }
        if present != epoch {
            return Err(stale(node, service));
        }
        match self.offering(&node, &service).await? {
            present if present == epoch => Ok(Way::There { node, epoch, service }),
            _ => Err(stale(node, service)),
        }
    }

    fn here(&self, service: &str) -> Result<Way> {
        match self.services.local(service) {
            Some(handler) => Ok(Way::Here { service: service.to_owned(), handler }),
            None => Err(Error::ServiceNotFound { service: service.to_owned(), at: self.lease.id().to_string() }),
        }
    }

    /// The present epoch of `node`, which offers `service`.
    async fn offering(&self, node: &NodeId, service: &ServiceName) -> Result<Epoch> {
        let mut record = self.directory.resolve(node).await?;
        if !record.offers(service.as_str()) {
            self.directory.read_again(node).await?;
            record = self.directory.resolve(node).await?;
        }
        if !record.offers(service.as_str()) {
            return Err(Error::ServiceNotFound { service: service.to_string(), at: node.to_string() });
        }
        Ok(record.epoch)
    }
}
