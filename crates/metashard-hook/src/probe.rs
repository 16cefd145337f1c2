//! Whether a hook can be reached at all: a connection, and for https its handshake, and no request.

use metashard_runtime::log;
use tokio::time::timeout;

use crate::{Endpoint, Error, Invoker};

impl Invoker {
    /// Connects to where a hook is, within the endpoint's time-out, and hangs up.
    ///
    /// # Errors
    ///
    /// Why it cannot be reached, for people.
    pub async fn probe(&self, endpoint: &Endpoint) -> Result<(), String> {
        let limit = endpoint.timeout;
        let Some(secured) = endpoint.secured() else {
            return Err(log::chain(&Error::NotSecured));
        };
        let open = self.open(endpoint, &secured, &endpoint.place.origin);
        let opened = match timeout(limit, open).await {
            Ok(opened) => opened.map(drop),
            Err(_) => Err(Error::TimedOut {
                url: endpoint.place.url.to_string(),
                limit,
            }),
        };
        opened.map_err(|error| log::chain(&error))
    }
}
