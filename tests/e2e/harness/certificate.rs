//! Certificates, made by openssl.

use std::path::Path;
use std::process::Command;

use super::finish;

/// Writes `STEM.pem`, a certificate that signs itself for these names, `STEM.key`, and both of them
/// in `STEM.both`. `names` are as in a subject's alternative name: `DNS:a.example.com`.
pub fn certify(directory: &Path, stem: &str, names: &str) {
    let path = |end| directory.join(format!("{stem}.{end}")).to_str().unwrap().to_owned();
    let key = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    finish(
        Command::new("openssl")
            .args(key.split(' '))
            .args(["-subj", &format!("/CN=pointsman {stem}")])
            .args(["-addext", &format!("subjectAltName={names}")])
            .args(["-keyout", &path("key"), "-out", &path("pem")]),
    )
    .success();
    let read = |end| std::fs::read(path(end)).unwrap();
    std::fs::write(path("both"), [read("pem"), read("key")].concat()).unwrap();
}
