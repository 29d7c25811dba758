//! The demo's certificates, made at its start by an authority of its own. No key leaves memory.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::PrivateKeyDer;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What certificates are signed with.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> anyhow::Result<Self> {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(DnType::CommonName, "pointsman demo");
        Ok(Authority(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?))
    }

    /// A server's side of TLS, with a certificate for `name` alone.
    pub(super) fn acceptor(&self, name: &str) -> anyhow::Result<TlsAcceptor> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.0)?;
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config).into())
    }

    /// A client's side of TLS, which trusts this authority and no other.
    pub(super) fn connector(&self) -> anyhow::Result<TlsConnector> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone())?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config).into())
    }

    /// Writes the authority's certificate, for `curl --cacert`.
    pub(super) fn publish(&self) -> anyhow::Result<CertificateFile> {
        let name = format!("pointsman-demo-{:08x}.pem", fastrand::u32(..));
        let path = std::env::temp_dir().join(name);
        let cannot = || format!("cannot write {}", path.display());
        // A new file, never one that somebody else has laid out under this name.
        let mut file =
            OpenOptions::new().write(true).create_new(true).open(&path).with_context(cannot)?;
        let written = file.write_all(pem(self.0.der()).as_bytes()).with_context(cannot);
        let published = CertificateFile(path.clone());
        written.map(|()| published)
    }
}

/// A file that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct CertificateFile(PathBuf);

impl CertificateFile {
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for CertificateFile {
    fn drop(&mut self) {
        // Somebody may have removed it already.
        let _missing = fs::remove_file(&self.0);
    }
}

/// Not the process's default: there is none, and the demo is alone in using TLS.
fn provider() -> Arc<rustls::crypto::CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The textual form of a certificate (RFC 7468).
fn pem(der: &[u8]) -> String {
    let mut text = "-----BEGIN CERTIFICATE-----\n".to_owned();
    // 48 bytes are 64 characters, a line.
    for line in der.chunks(48) {
        text.push_str(&base64(line));
        text.push('\n');
    }
    text + "-----END CERTIFICATE-----\n"
}

/// RFC 4648 section 4.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let byte = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for place in 0..4usize {
            let sextet = (bits >> (18 - 6 * place)) & 63;
            let letter = ALPHABET.get(sextet as usize).copied().unwrap_or(b'=');
            text.push(if place <= group.len() { letter.into() } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648 section 10.
    #[test]
    fn base64_of_the_rfc() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(bytes.as_bytes()), expected);
        }
        assert_eq!(base64(&[0xfb, 0xff]), "+/8=");
    }

    #[test]
    fn the_file_is_a_certificate_and_goes_away() {
        let authority = Authority::new().unwrap();
        let (first, second) = (authority.publish().unwrap(), authority.publish().unwrap());
        let text = fs::read_to_string(first.path()).unwrap();
        assert_eq!(text, fs::read_to_string(second.path()).unwrap());
        assert!(text.starts_with("-----BEGIN CERTIFICATE-----\nMII"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 64), "{text}");
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists() && second.path().exists());
    }
}
