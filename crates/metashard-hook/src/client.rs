//! Calling a hook: one POST, with what belongs to it: keep-alive, a second try, redirects, limits.

use std::sync::Arc;

use bytes::Bytes;
use http::{
    HeaderValue, Method, Response, StatusCode,
    header::{ETAG, LOCATION},
};
use hyper::body::Incoming;
use metashard_api::id::{Epoch, ShardId};
use metashard_reconcile::sync::HookResult;
use metashard_runtime::{clock::Clock, log};
use rustls::ClientConfig;
use tokio::time::timeout;

use crate::{
    Endpoint, Error, Metrics, Target,
    answer::{self, Answer},
    connection::{Connection, Trace, Unanswered},
    endpoint::{Carried, Origin, Place, Secured, Shared},
    etag::{Tagged, Tags},
    metrics::Key,
    pool::{Open, Pool},
    redirect::{self, MAX_REQUESTS},
    rope::{Rope, RopeBody},
    url,
};

/// Calls hooks. One for the process.
///
/// Each [`Endpoint`] has connections of its own, so that no controller can hold up another's.
/// `HTTP_PROXY` and the like are not read, unlike by Metacontroller: hooks are in the cluster, and what a proxy is for
/// belongs to the controller's spec.
#[derive(Debug)]
pub struct Invoker {
    clock: Clock,
    metrics: Metrics,
    shared: Shared,
}

/// What a hook is asked.
#[derive(Debug)]
pub struct Request<'a> {
    /// The JSON body, as pieces that are sent as they are, one after the other.
    pub body: Vec<Bytes>,
    /// The shard of the ownership under which the hook is called; it is told in a header, as is the epoch.
    pub shard: ShardId,
    /// The epoch of that ownership.
    pub epoch: Epoch,
    /// Names what the question is about, among all questions that this endpoint is ever asked: the uid of the parent, and
    /// the revision if there are several. A former answer is used only for the same.
    pub about: &'a str,
}

/// A request that may have to be made more than once.
struct Call<'a> {
    endpoint: &'a Endpoint,
    /// The same for all of it, whatever is replaced meanwhile.
    secured: Arc<Secured>,
    shard: ShardId,
    epoch: Epoch,
    about: &'a str,
    rope: Rope,
    /// The former answer, whose tag is sent.
    former: Option<Tagged>,
}

impl Invoker {
    /// An invoker that has called nobody yet.
    pub fn new(clock: Clock, metrics: Metrics) -> Self {
        Self {
            clock,
            metrics,
            shared: Shared::default(),
        }
    }

    /// Makes an endpoint. Make one for each hook of a controller when it is compiled, and keep it: it is what
    /// connections and metrics are kept for.
    ///
    /// # Errors
    ///
    /// If the URL cannot be called. Only a change of the controller can help.
    pub fn endpoint(&self, target: Target) -> Result<Endpoint, url::Error> {
        let place = Place::new(target.url.clone())?;
        let series = self.metrics.series(Key {
            hook: target.hook,
            url: place.url.to_string(),
            controller_name: target.controller_name.clone(),
            controller_kind: target.controller_kind,
        });
        Ok(Endpoint::new(
            target,
            place,
            Pool::new(self.clock.clone()),
            series,
            &self.shared,
        ))
    }

    /// Calls a hook once, by POST.
    ///
    /// There is one second try, at once, if a connection that had been kept open turns out to be closed.
    /// The result comes within the endpoint's time-out. Dropping the future ends the call; over HTTP/1.1 the hook sees
    /// its connection closed, over HTTP/2 its stream reset.
    pub async fn call(&self, endpoint: &Endpoint, request: Request<'_>) -> HookResult {
        let Some(secured) = endpoint.secured() else {
            return HookResult::Failed(log::chain(&Error::NotSecured));
        };
        let _in_flight = endpoint.series.begin();
        let former = endpoint
            .tags
            .as_ref()
            .and_then(|tags| tags.get(request.about, self.clock.now().mono));
        let call = Call {
            endpoint,
            secured,
            shard: request.shard,
            epoch: request.epoch,
            about: request.about,
            rope: request.body.into(),
            former,
        };
        let limit = endpoint.timeout;
        let result = match timeout(limit, self.exchange(&call)).await {
            Ok(result) => result,
            Err(_) => Err(Error::TimedOut {
                url: endpoint.place.url.to_string(),
                limit,
            }),
        };
        result.unwrap_or_else(|error| {
            if error.speaks_against_its_connection() {
                endpoint.pool.clear();
            }
            HookResult::Failed(log::chain(&error))
        })
    }

    /// The call and the redirects that it meets.
    async fn exchange(&self, call: &Call<'_>) -> Result<HookResult, Error> {
        let endpoint = call.endpoint;
        let mut redirected: Option<Place> = None;
        let mut method = Method::POST;
        for _ in 0..MAX_REQUESTS {
            let place = redirected.as_ref().unwrap_or(&endpoint.place);
            let (mut open, response) = self.request(call, place, &method).await?;
            let next = redirect::repeat(response.status())
                .and_then(|repeat| Some((repeat, response.headers().get(LOCATION)?)));
            let Some((repeat, location)) = next else {
                let fresh = call.fresh_tag(&response);
                let former = call.former.as_ref();
                let wall = self.clock.wall();
                let read = answer::read(&mut open.connection, response, former, wall).await;
                let Answer { result, is_read } =
                    read.map_err(|source| broken(method, place, source))?;
                if let (Some((tags, tag)), Ok(HookResult::Answer(body))) = (fresh, &result) {
                    tags.put(call.about, tag.as_ref(), body, self.clock.now().mono);
                }
                if is_read {
                    endpoint.pool.put(open);
                }
                return result;
            };
            let to = follow(place, location)?;
            method = repeat.method(method);
            if answer::drain(&mut open.connection, response.into_body()).await {
                endpoint.pool.put(open);
            }
            redirected = Some(to);
        }
        Err(Error::TooManyRedirects {
            url: endpoint.place.url.to_string(),
            limit: MAX_REQUESTS,
        })
    }

    /// One request, over an idle connection if there is a good one, else over a new one.
    async fn request(
        &self,
        call: &Call<'_>,
        place: &Place,
        method: &Method,
    ) -> Result<(Open, Response<Incoming>), Error> {
        let pool = &call.endpoint.pool;
        if let Some(mut open) = pool.take(&place.origin) {
            match self.send(call, place, method, &mut open.connection).await {
                Ok(response) => return Ok((open, response)),
                // Those that were idle as long are gone as well.
                Err(unanswered) if unanswered.in_silence => pool.clear(),
                Err(unanswered) => return Err(broken(method.clone(), place, unanswered.error)),
            }
        }
        let mut open = self
            .open(call.endpoint, &call.secured, &place.origin)
            .await?;
        if let Some(shared) = open.share() {
            pool.put(shared);
        }
        match self.send(call, place, method, &mut open.connection).await {
            Ok(response) => Ok((open, response)),
            Err(unanswered) => Err(broken(method.clone(), place, unanswered.error)),
        }
    }

    async fn send(
        &self,
        call: &Call<'_>,
        place: &Place,
        method: &Method,
        connection: &mut Connection,
    ) -> Result<Response<Incoming>, Unanswered> {
        let body = if *method == Method::GET {
            RopeBody::EMPTY
        } else {
            call.rope.clone().into()
        };
        let begin = self.clock.now().mono;
        let request = place.request(connection, method.clone(), body, call.carried(place));
        let response = connection.send(request).await?;
        let after = self.clock.now().mono.since(begin);
        let series = &call.endpoint.series;
        series.answered(method, response.status(), after);
        Ok(response)
    }

    pub(crate) async fn open(
        &self,
        endpoint: &Endpoint,
        secured: &Secured,
        origin: &Arc<Origin>,
    ) -> Result<Open, Error> {
        let tls = self.tls_for(secured, origin)?;
        let trace = Trace {
            clock: &self.clock,
            series: &endpoint.series,
        };
        Ok(Open {
            connection: Connection::open(origin, tls.as_ref(), &trace).await?,
            origin: Arc::clone(origin),
            opened: self.clock.now().mono,
            generation: secured.generation,
        })
    }

    pub(crate) fn tls_for(
        &self,
        secured: &Secured,
        origin: &Origin,
    ) -> Result<Option<Arc<ClientConfig>>, Error> {
        match &secured.security.tls {
            _ if !origin.secure => Ok(None),
            Some(tls) => Ok(Some(Arc::clone(tls))),
            None => self.shared.system_roots.config().map(Some),
        }
    }
}

impl<'a> Call<'a> {
    fn carried(&self, place: &Place) -> Carried<'_> {
        // A redirect to another server gets no credentials.
        let is_own = place.origin == self.endpoint.place.origin;
        Carried {
            shard: self.shard,
            epoch: self.epoch,
            authorization: self
                .secured
                .security
                .authorization
                .as_ref()
                .filter(|_| is_own),
            tag: self.former.as_ref().map(|former| &former.tag),
        }
    }

    /// The tag of a good answer, and where it is to be kept.
    fn fresh_tag(&self, response: &Response<Incoming>) -> Option<(&'a Tags, Option<HeaderValue>)> {
        let tags = self.endpoint.tags.as_ref()?;
        (response.status() == StatusCode::OK).then(|| (tags, response.headers().get(ETAG).cloned()))
    }
}

fn follow(from: &Place, location: &HeaderValue) -> Result<Place, Error> {
    location
        .to_str()
        .ok()
        .and_then(|location| redirect::resolve(&from.url, location))
        .and_then(|url| Place::new(url).ok())
        .ok_or_else(|| Error::BadRedirect {
            url: from.url.to_string(),
            location: String::from_utf8_lossy(location.as_bytes()).into_owned(),
        })
}

fn broken(method: Method, place: &Place, source: hyper::Error) -> Error {
    Error::Exchange {
        method,
        url: place.url.to_string(),
        source,
    }
}
