"""GET / and /docs, for browsers."""

from fastapi import APIRouter, Request, Response

from softlook.serve.pages import PAGES, page_response

router = APIRouter(include_in_schema=False)


async def page(request: Request) -> Response:
    """The models with a form to try them, or the description of the API."""
    return page_response(request.url.path)


for path in PAGES:
    router.add_api_route(path, page, methods=["GET"])
