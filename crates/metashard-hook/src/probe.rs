//! Whether a hook can be reached at all: a connection, and for https its handshake, and no request.

use std::time::SystemTime;

use metashard_runtime::log;
use tokio::time::timeout;

use crate::{Endpoint, Error, Invoker, connection};

impl Invoker {
    /// Connects to where a hook is, within the endpoint's time-out, and hangs up. When the certificate ends that the hook
    /// shows; `None` over plain http.
    ///
    /// # Errors
    ///
    /// Why it cannot be reached, for people.
    pub async fn probe(&self, endpoint: &Endpoint) -> Result<Option<SystemTime>, String> {
        let limit = endpoint.timeout;
        let Some(secured) = endpoint.secured() else {
            return Err(log::chain(&Error::NotSecured));
        };
        let origin = &endpoint.place.origin;
        let greet = async {
            let tls = self.tls_for(&secured, origin)?;
            connection::greet(origin, tls.as_ref()).await
        };
        let greeted = timeout(limit, greet).await.unwrap_or_else(|_| {
            Err(Error::TimedOut {
                url: endpoint.place.url.to_string(),
                limit,
            })
        });
        greeted.map_err(|error| log::chain(&error))
    }
}
