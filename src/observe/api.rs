//! The requests that the admin server answers.

use std::sync::Arc;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Bytes};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::timeout;

use super::auth::{Peer, may_change};
use super::resource::{PATHS, Resource};
use super::{change, metrics, sessions, status};
use crate::config::{Secrets, effective};
use crate::limits::{ADMIN_BODY, ADMIN_READ, ADMIN_RELOAD};
use crate::snapshot::Snapshot;
use crate::state::process::{Command, Phase};
use crate::state::{Process, Unchanged};

/// What answers are made of.
#[derive(Debug)]
pub struct Context {
    process: Arc<Process>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    /// One scrape at a time: with thousands of backends each takes a while and some memory.
    scrape: Semaphore,
}

impl Context {
    /// Reads what is in force at the moment of each request.
    pub fn new(process: Arc<Process>, snapshots: watch::Receiver<Arc<Snapshot>>) -> Self {
        Context { process, snapshots, scrape: Semaphore::new(1) }
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshots.borrow().clone()
    }
}

pub(super) type Answer = Response<Full<Bytes>>;

/// Answers one request.
pub(super) async fn answer<B>(request: Request<B>, peer: Peer, context: Arc<Context>) -> Answer
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (parts, body) = request.into_parts();
    let Some(resource) = Resource::find(parts.uri.path()) else {
        return json(StatusCode::NOT_FOUND, &json!({"error": "no such path", "paths": PATHS}));
    };
    if !resource.allows(&parts.method) {
        let mut answer = error(StatusCode::METHOD_NOT_ALLOWED, "this path does not do that");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static(resource.methods()));
        return answer;
    }
    if resource.is_guarded(&parts.method) {
        let snapshot = context.snapshot();
        let token_file = snapshot.config.admin.as_ref().and_then(|a| a.token_file.as_deref());
        if let Err(refusal) = may_change(&parts, peer, token_file) {
            return error(StatusCode::FORBIDDEN, &refusal.to_string());
        }
    }
    let reads = parts.method == Method::GET || parts.method == Method::HEAD;
    let body = if reads { Ok(Bytes::new()) } else { read(body).await };
    let body = match body {
        Ok(body) => body,
        Err(answer) => return *answer,
    };
    let process = &context.process;
    match resource {
        Resource::Metrics => scrape(context).await,
        Resource::Live => text(StatusCode::OK, "text/plain; charset=utf-8", "ok\n".to_owned()),
        Resource::Ready => ready(process),
        Resource::Status => json(StatusCode::OK, &status::status(process, &context.snapshot())),
        Resource::Config => {
            json(StatusCode::OK, &effective(&context.snapshot().config, Secrets::Hidden))
        }
        Resource::Reload => reload(process).await,
        Resource::Backend { pool, backend } if reads => {
            match context.snapshot().backend(&pool, &backend) {
                Ok((_, backend)) => json(StatusCode::OK, &status::backend(backend)),
                Err(problem) => unchanged(problem),
            }
        }
        Resource::Backend { pool, backend } => change_backend(&context, pool, backend, &body).await,
        Resource::Sessions => list(process, parts.uri.query()).await,
        Resource::Session(id) => end(process, &id).await,
    }
}

/// Reads a request's body to its end: bounded in size and time.
async fn read<B>(body: B) -> Result<Bytes, Box<Answer>>
where
    B: Body,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (status, message) =
        match timeout(ADMIN_READ, Limited::new(body, ADMIN_BODY).collect()).await {
            Ok(Ok(collected)) => return Ok(collected.to_bytes()),
            Ok(Err(problem)) if problem.is::<http_body_util::LengthLimitError>() => {
                (StatusCode::PAYLOAD_TOO_LARGE, "the body is too large")
            }
            Ok(Err(_)) => (StatusCode::BAD_REQUEST, "the body is incomplete"),
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "the body took too long"),
        };
    Err(Box::new(error(status, message)))
}

async fn scrape(context: Arc<Context>) -> Answer {
    // Neither the semaphore is ever closed nor does rendering panic; if it did, say so.
    let Ok(_one) = context.scrape.acquire().await else { return broken() };
    let (process, snapshot) = (context.process.clone(), context.snapshot());
    let rendered = tokio::task::spawn_blocking(move || metrics::render(&process, &snapshot)).await;
    match rendered {
        Ok(body) => text(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", body),
        Err(_) => broken(),
    }
}

fn ready(process: &Process) -> Answer {
    let phase = *process.phase.borrow();
    let (status, word) = match phase {
        Phase::Running if process.ready() => (StatusCode::OK, "ready"),
        Phase::Running => (StatusCode::SERVICE_UNAVAILABLE, "starting"),
        Phase::Leaving => (StatusCode::SERVICE_UNAVAILABLE, "leaving"),
        Phase::Draining { .. } => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Phase::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
    };
    text(status, "text/plain; charset=utf-8", format!("{word}\n"))
}

async fn reload(process: &Process) -> Answer {
    let (result, received) = oneshot::channel();
    if process.commands.try_send(Command::Reload(result)).is_err() {
        return error(StatusCode::SERVICE_UNAVAILABLE, "busy or stopping; try again");
    }
    match timeout(ADMIN_RELOAD, received).await {
        Ok(Ok(Ok(generation))) => json(StatusCode::OK, &json!({"generation": generation})),
        Ok(Ok(Err(errors))) => json(StatusCode::UNPROCESSABLE_ENTITY, &json!({"errors": errors})),
        Ok(Err(_)) => error(StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        Err(_) => error(StatusCode::GATEWAY_TIMEOUT, "the reload is still under way"),
    }
}

/// The answer shows the backend as it is then.
async fn change_backend(context: &Context, pool: String, backend: String, body: &[u8]) -> Answer {
    let change = match change::read(body) {
        Ok(change) => change,
        Err(problem) => return error(StatusCode::BAD_REQUEST, &problem.to_string()),
    };
    let (answer, received) = oneshot::channel();
    let command = Command::Change { pool, backend, change, answer };
    if context.process.commands.try_send(command).is_err() {
        return error(StatusCode::SERVICE_UNAVAILABLE, "busy or stopping; try again");
    }
    match timeout(ADMIN_RELOAD, received).await {
        Ok(Ok(Ok(state))) => {
            let snapshot = context.snapshot();
            let mut backends = snapshot.pools.iter().flat_map(|pool| &pool.backends);
            match backends.find(|backend| Arc::ptr_eq(&backend.state, &state)) {
                Some(backend) => json(StatusCode::OK, &status::backend(backend)),
                // A reload has taken it out since.
                None => unchanged(Unchanged::NoBackend),
            }
        }
        Ok(Ok(Err(problem))) => unchanged(problem),
        Ok(Err(_)) => unchanged(Unchanged::Stopping),
        Err(_) => error(StatusCode::GATEWAY_TIMEOUT, "a reload is under way; this comes after it"),
    }
}

fn unchanged(problem: Unchanged) -> Answer {
    let status = match problem {
        Unchanged::NoPool | Unchanged::NoBackend => StatusCode::NOT_FOUND,
        Unchanged::Weight(_) => StatusCode::BAD_REQUEST,
        Unchanged::Stopping => StatusCode::SERVICE_UNAVAILABLE,
    };
    error(status, &problem.to_string())
}

async fn list(process: &Process, query: Option<&str>) -> Answer {
    let limit = match sessions::limit(query) {
        Ok(limit) => limit,
        Err(problem) => return error(StatusCode::BAD_REQUEST, &problem),
    };
    match sessions::list(process, limit).await {
        Ok(sessions) => json(StatusCode::OK, &sessions),
        Err(problem) => error(StatusCode::SERVICE_UNAVAILABLE, &problem.to_string()),
    }
}

async fn end(process: &Process, id: &str) -> Answer {
    let Some(id) = sessions::parse_id(id) else {
        return error(StatusCode::BAD_REQUEST, "an id is 1 to 16 hex digits");
    };
    match sessions::end(process, id).await {
        Ok(true) => json(StatusCode::OK, &json!({"ended": format!("{id:016x}")})),
        Ok(false) => error(StatusCode::NOT_FOUND, "there is no such session"),
        Err(problem) => error(StatusCode::SERVICE_UNAVAILABLE, &problem.to_string()),
    }
}

fn broken() -> Answer {
    error(StatusCode::INTERNAL_SERVER_ERROR, "this is a defect of pointsman; see its log")
}

fn error(status: StatusCode, message: &str) -> Answer {
    json(status, &json!({"error": message}))
}

fn json(status: StatusCode, value: &impl Serialize) -> Answer {
    match serde_json::to_string(value) {
        Ok(body) => text(status, "application/json", body + "\n"),
        Err(problem) => {
            tracing::error!(%problem, "an answer of the admin server is not JSON");
            text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", String::new())
        }
    }
}

fn text(status: StatusCode, kind: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}
