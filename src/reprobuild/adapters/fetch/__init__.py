"""Discovering and fetching pinned files: wheels, sdists, Debian packages, URLs, images, paths.

`discovery.Discovery` is what `lock` calls; `fetchers.file_fetchers` gives the fetchers behind
`ports.Fetcher`. Importing either is cheap; requests, pypi-simple, python-debian and docker are
imported when they are first needed.
"""
