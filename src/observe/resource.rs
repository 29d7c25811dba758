//! What can be asked for: paths of the admin server, and what may be done with each.

use hyper::Method;

/// Every path, as an answer to one that there is not shows them.
pub(super) const PATHS: [&str; 9] = [
    "/metrics",
    "/livez",
    "/readyz",
    "/api/v1/status",
    "/api/v1/config",
    "/api/v1/reload",
    "/api/v1/pools/POOL/backends/BACKEND",
    "/api/v1/sessions",
    "/api/v1/sessions/ID",
];

/// What a path stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Metrics,
    Live,
    Ready,
    Status,
    Config,
    Reload,
    Backend { pool: String, backend: String },
    Sessions,
    Session(String),
}

impl Resource {
    pub fn find(path: &str) -> Option<Resource> {
        Some(match path {
            "/metrics" => Resource::Metrics,
            "/livez" => Resource::Live,
            "/readyz" => Resource::Ready,
            "/api/v1/status" => Resource::Status,
            "/api/v1/config" => Resource::Config,
            "/api/v1/reload" => Resource::Reload,
            "/api/v1/sessions" => Resource::Sessions,
            _ => return Resource::find_named(path.strip_prefix("/api/v1/")?),
        })
    }

    /// Names are percent-encoded. The `/` in the path of a unix socket may stay as it is: nothing
    /// comes after a backend's name.
    fn find_named(path: &str) -> Option<Resource> {
        if let Some(id) = path.strip_prefix("sessions/") {
            return Some(Resource::Session(decode(id)?));
        }
        let (pool, rest) = path.strip_prefix("pools/")?.split_once('/')?;
        let backend = rest.strip_prefix("backends/")?;
        let named = !pool.is_empty() && !backend.is_empty();
        let (pool, backend) = (decode(pool)?, decode(backend)?);
        named.then_some(Resource::Backend { pool, backend })
    }

    /// Whether the request is one that not everybody may send.
    pub fn is_guarded(&self, method: &Method) -> bool {
        match self {
            Resource::Reload | Resource::Sessions | Resource::Session(_) => true,
            Resource::Backend { .. } => *method == Method::POST,
            _ => false,
        }
    }

    /// As the header `Allow` says it.
    pub fn methods(&self) -> &'static str {
        match self {
            Resource::Reload => "POST",
            Resource::Backend { .. } => "GET, HEAD, POST",
            Resource::Session(_) => "DELETE",
            _ => "GET, HEAD",
        }
    }

    pub fn allows(&self, method: &Method) -> bool {
        self.methods().split(", ").any(|allowed| allowed == method.as_str())
    }
}

/// Undoes percent-encoding (RFC 3986, section 2.1); `None` if it is not that, or not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        bytes.push(match byte {
            b'%' => u8::try_from(digit(rest.next())? * 16 + digit(rest.next())?).ok()?,
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths() {
        let check = |path: &str, expected: Option<(&str, &str)>| {
            let named = |(pool, backend): (&str, &str)| Resource::Backend {
                pool: pool.to_owned(),
                backend: backend.to_owned(),
            };
            let path = format!("/api/v1/pools/{path}");
            assert_eq!(Resource::find(&path), expected.map(named), "{path}");
        };
        check("www/backends/b1", Some(("www", "b1")));
        check("www/backends/10.0.0.1:80", Some(("www", "10.0.0.1:80")));
        check("www/backends/%5B::1%5d:80", Some(("www", "[::1]:80")));
        check("a%20b/backends/%C3%A9%25", Some(("a b", "é%")));
        check("www/backends/unix:%2Frun%2Fa.sock", Some(("www", "unix:/run/a.sock")));
        check("www/backends/unix:/run/a.sock", Some(("www", "unix:/run/a.sock")));
        check("backends/backends/backends/backends", Some(("backends", "backends/backends")));
        for path in ["", "www", "www/", "www/backends", "www/backends/", "/backends/b1", "www/b1"] {
            check(path, None);
        }
        for name in ["%", "%4", "%4g", "%+4", "%c3", "a%zz"] {
            check(&format!("www/backends/{name}"), None);
        }
    }

    #[test]
    fn every_path_is_known() {
        for path in PATHS {
            let resource = Resource::find(path).expect(path);
            assert!(resource.methods().split(", ").all(|m| !m.is_empty()), "{path}");
        }
        assert_eq!(Resource::find("/api/v1/sessions/%30a"), Some(Resource::Session("0a".into())));
        for path in ["", "/", "/metrics/", "/api/v1/", "/api/v1/sessions?limit=1", "/api/v2/status"]
        {
            assert_eq!(Resource::find(path), None, "{path}");
        }
    }
}
