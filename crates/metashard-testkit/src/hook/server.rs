//! The HTTP server of a fake hook.

use std::{net::TcpListener, sync::Arc};

use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::oneshot,
    task::JoinSet,
    time::Instant,
};

use super::{
    Call, Shared,
    answer::{Content, CutOff, respond},
    secure::Tls,
};

/// A call under way. Dropped before it is answered, it is noted as cut.
struct Exchange<'a> {
    shared: &'a Shared,
    number: usize,
}

impl Exchange<'_> {
    fn note(&self, end: impl FnOnce(&mut Call, std::time::Instant)) {
        let now = Instant::now().into_std();
        if let Some(call) = self.shared.calls.lock().get_mut(self.number) {
            end(call, now);
        }
    }
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        self.note(|call, now| {
            if call.answered.is_none() {
                call.cut = Some(now);
            }
        });
    }
}

/// Serves until `stopped` says so or its sender is gone; open connections are dropped then.
pub(crate) async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    shared: Arc<Shared>,
    mut stopped: oneshot::Receiver<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let mut connections = JoinSet::new();
    for connection in 0_u64.. {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(_) => continue,
            },
            _ = &mut stopped => return,
        };
        let shared = Arc::clone(&shared);
        let acceptor = tls.as_ref().map(Tls::acceptor);
        connections.spawn(async move {
            let Some(acceptor) = acceptor else {
                return converse(stream, &shared, connection, false).await;
            };
            // Err: the caller does not like us, or we do not like it.
            if let Ok(stream) = acceptor.accept(stream).await {
                let shown = stream.get_ref().1.peer_certificates().is_some();
                converse(stream, &shared, connection, shown).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    shared: &Shared,
    connection: u64,
    has_certificate: bool,
) {
    let service = service_fn(|request| answer(shared, (connection, has_certificate), request));
    // Err: the caller went away, or we cut the connection on purpose.
    drop(
        http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .await,
    );
}

async fn answer(
    shared: &Shared,
    (connection, has_certificate): (u64, bool),
    request: Request<Incoming>,
) -> Result<Response<Content>, CutOff> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| CutOff)?.to_bytes();
    let call = Call {
        method: head.method,
        path: head.uri.to_string(),
        headers: head.headers,
        body,
        received: Instant::now().into_std(),
        answered: None,
        cut: None,
        has_certificate,
        connection,
    };
    let number = shared.calls.lock().push(call.clone());
    let exchange = Exchange { shared, number };
    let handler = Arc::clone(&shared.handler.lock());
    let response = respond(handler(&call)).await.ok_or(CutOff)?;
    exchange.note(|call, now| call.answered = Some(now));
    Ok(response)
}
