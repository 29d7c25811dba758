//! The client of checks that shake hands.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ahash::AHashMap;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConfig, ClientConnection, Resumption};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::config::{Probe, Tls};
use crate::state::CheckFailure;

/// Shakes hands as one pool's checks do.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// The clients of a configuration: those that verify alike share the authorities.
#[derive(Debug, Default)]
pub struct TlsClients {
    configs: AHashMap<(Option<PathBuf>, bool), Arc<ClientConfig>>,
}

/// Why checks cannot shake hands as configured.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)]
pub enum TlsFault {
    #[error("ca_file: {path} cannot be read: {error}")]
    Unreadable { path: PathBuf, error: io::Error },
    #[error("ca_file: {path} is no list of certificates in PEM")]
    NotPem { path: PathBuf },
    #[error("ca_file: no certificate in {path} is one of an authority")]
    NoAuthority { path: PathBuf },
    #[error("sni: `{0}` is no name that TLS can ask for")]
    Name(Box<str>),
    #[error("no TLS client: {0}")]
    Client(#[from] rustls::Error),
}

impl TlsClients {
    /// The client of a check; `None` if it does not shake hands.
    ///
    /// # Errors
    ///
    /// What is wrong with its certificates or its name.
    pub fn client(&mut self, probe: &Probe) -> Result<Option<TlsClient>, TlsFault> {
        let Some(tls) = probe.tls() else { return Ok(None) };
        let name = match &tls.sni {
            Some(name) => ServerName::try_from(String::from(&**name))
                .map_err(|_| TlsFault::Name(name.clone()))?,
            // Of an address no SNI is sent (RFC 6066 section 3), and nothing is verified by it.
            None => ServerName::from(IpAddr::from(Ipv4Addr::LOCALHOST)),
        };
        let over = matches!(probe, Probe::Http(_));
        let key = (tls.ca_file.clone(), over);
        let config = match self.configs.get(&key) {
            Some(config) => config.clone(),
            None => {
                let config = Arc::new(config(tls, over)?);
                self.configs.insert(key, config.clone());
                config
            }
        };
        Ok(Some(TlsClient { config, name }))
    }
}

impl TlsClient {
    pub(super) fn connection(&self) -> Result<ClientConnection, rustls::Error> {
        ClientConnection::new(self.config.clone(), self.name.clone())
    }
}

fn config(tls: &Tls, http: bool) -> Result<ClientConfig, TlsFault> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()?;
    let builder = match &tls.ca_file {
        Some(path) => builder.with_root_certificates(authorities(path)?),
        None => {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        }
    };
    let mut config = builder.with_no_client_auth();
    // A resumed handshake would not show that the backend still has its key.
    config.resumption = Resumption::disabled();
    if http {
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
    }
    Ok(config)
}

/// The certificates in a file. Some of the public ones are older than what webpki reads; the others
/// count.
fn authorities(path: &Path) -> Result<RootCertStore, TlsFault> {
    let fault = |error| match error {
        pem::Error::Io(error) => TlsFault::Unreadable { path: path.to_owned(), error },
        _ => TlsFault::NotPem { path: path.to_owned() },
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(fault)?;
    let certificates = certificates.collect::<Result<Vec<_>, _>>().map_err(fault)?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    if added == 0 {
        return Err(TlsFault::NoAuthority { path: path.to_owned() });
    }
    Ok(roots)
}

/// What an error of rustls says of the backend.
pub(super) fn failure(error: &rustls::Error) -> CheckFailure {
    match error {
        rustls::Error::AlertReceived(alert) => CheckFailure::TlsAlert(u8::from(*alert)),
        rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented => {
            CheckFailure::Certificate
        }
        rustls::Error::FailedToGetRandomBytes => CheckFailure::Shortage,
        _ => CheckFailure::TlsError,
    }
}

/// Takes any certificate, and any proof that it is the backend's: a check asks whether somebody
/// answers, and sends nothing that is worth stealing.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
