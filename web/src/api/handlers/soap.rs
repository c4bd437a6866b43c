//! The SOAP service, and its WSDL and XML Schema documents.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};
use postonce_shared::config::PublicAddress;
use postonce_shared::messaging::xml;
use postonce_shared::protocol::accept::Acceptor;

use crate::access::authentication::{Caller, Undecided};
use crate::access::signatures::Verifier;
use crate::api::account_service::AccountService;
use crate::api::answer_memory::SharedBody;
use crate::api::soap::contract::Contract;
use crate::api::soap::envelope::{self, Refusal, ReplyTerms, Request, Version};
use crate::api::soap::fault::content_type;
use crate::api::soap::service::Service;
use crate::api::{negotiate, translate};
use crate::error::{ApiError, Code};
use crate::formats::table;
use crate::metrics::Metrics;
use crate::query;

/// Placeholder address in the WSDL document, replaced by the address that the client uses.
const ADDRESS: &str = "http://127.0.0.1:8080";

/// Executes a SOAP request in the contract of its path.
pub async fn call(
    mut caller: Caller<Undecided>,
    request: HttpRequest,
    payload: Payload,
    acceptor: Data<Acceptor>,
    accounts_service: Data<AccountService>,
    metrics: Data<Metrics>,
) -> Result<HttpResponse, ApiError> {
    let contract = contract(&request)?;
    let version = version(&request)?;
    let limits = translate::xml_limits(&request);
    let root = table::parse(&translate::body(&mut caller, &request, payload).await?, &limits)?;
    let message = Request::parse(version, root).map_err(|Refusal { error, terms }| {
        request.extensions_mut().insert(*terms);
        error
    })?;
    // Faults also relate to the message id of the request.
    let terms = ReplyTerms { addressing: message.addressing.clone(), ..ReplyTerms::of(version) };
    request.extensions_mut().insert(terms.clone());
    let mut service = Service {
        caller: &mut caller,
        http: &request,
        acceptor: &acceptor,
        accounts_service: &accounts_service,
        metrics: &metrics,
    };
    let answer = service.execute(contract, &message).await?;
    let body = envelope::write(contract, &terms, answer);
    Ok(HttpResponse::Ok().content_type(content_type(version)).body(body))
}

/// Returns the contract at the path of a request.
fn contract(request: &HttpRequest) -> Result<Contract, ApiError> {
    Contract::at(query::path(request)).ok_or_else(|| ApiError::internal("a route without a contract"))
}

fn version(request: &HttpRequest) -> Result<Version, ApiError> {
    let unsupported = |detail: String| ApiError::new(Code::MediaTypeUnsupported, detail);
    let wanted = "text/xml for SOAP 1.1, or application/soap+xml for SOAP 1.2";
    let essence = negotiate::utf8_essence(request.headers())?
        .ok_or_else(|| unsupported(format!("Send the header Content-Type: {wanted}.")))?;
    Version::of_media_type(essence)
        .ok_or_else(|| unsupported(format!("Send {wanted}; {essence:?} is not supported here.")))
}

/// Returns the WSDL document with the address that the client uses. Must not be cached: the address can come from the
/// header `Host`, and a client could set it for the next one.
///
/// # Errors
/// None, as the path is that of a contract.
pub async fn wsdl(request: HttpRequest, verifier: Data<Verifier>) -> Result<HttpResponse, ApiError> {
    let PublicAddress { scheme, authority } = verifier.address(&request);
    let address = format!("{scheme}://{authority}");
    let document = contract(&request)?.wsdl().replace(ADDRESS, &xml::escaped(&address));
    let not_cached = (header::CACHE_CONTROL, "no-store");
    Ok(HttpResponse::Ok().content_type("text/xml; charset=utf-8").insert_header(not_cached).body(document))
}

/// Returns an XML Schema by the name under which other documents import it.
pub async fn schema(request: HttpRequest) -> Result<HttpResponse, ApiError> {
    let name = request.match_info().query("name");
    let found = postonce_schemas::XSDS.iter().find(|(known, _)| *known == name);
    let (_, document) = found.ok_or_else(|| {
        let names: Vec<&str> = postonce_schemas::XSDS.iter().map(|(name, _)| *name).collect();
        ApiError::new(
            Code::NotFound,
            format!("The schema does not exist; available are {}.", names.join(", ")),
        )
    })?;
    let cached = (header::CACHE_CONTROL, "no-cache");
    let mut response = HttpResponse::Ok();
    response.extensions_mut().insert(SharedBody);
    Ok(response.content_type("application/xml").insert_header(cached).body(*document))
}
